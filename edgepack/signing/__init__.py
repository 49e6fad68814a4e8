"""Signatures over SHA256SUMS as minisign and cosign make them: their tools verify what edgepack signs, and
edgepack what they sign.

What is signed is one small file; it has the digest of every other one. Keys are made by these tools
(``minisign -G``, ``cosign generate-key-pair``) or by openssl, and come from a file or an environment variable
(``env://NAME``), never from a file of a project.
"""
