// SPDX-License-Identifier: Apache-2.0

/** What went wrong, with a code: a status of the C side ("EP_E_PARAMS_HASH") or one of this package's own. */
export class EdgepackError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.name = "EdgepackError";
    this.code = code;
  }
}
