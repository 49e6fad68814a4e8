// Uses the class of the small model: prints the outputs for the recorded input, a number a line.
import Foundation
import smallSwift

func said(_ call: () throws -> Void) -> String {
    do {
        try call()
        return "nothing"
    } catch {
        return "\(error)"
    }
}

func expect(_ expected: String, _ call: () throws -> Void) {
    let text = said(call)
    precondition(text == expected, text)
}

let recorded = try Data(contentsOf: URL(fileURLWithPath: CommandLine.arguments[1]))
let input = recorded.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) }
let session = try Session(threads: 2)
let outputs = try session.run(input: input)
for (value, sign) in zip(outputs.output, outputs.sign) {
    print(value, sign)
}

var output = [Float](repeating: .nan, count: Elements.output)
var sign = [Int8](repeating: -1, count: Elements.sign)
try session.run(input: input, output: &output, sign: &sign)
precondition(output == outputs.output && sign == outputs.sign)

expect("input has 32 elements; the array has 31.") { _ = try session.run(input: [Float](repeating: 0, count: 31)) }
var short = [Int8](repeating: 0, count: 1)
expect("sign has 32 elements; the array has 1.") { try session.run(input: input, output: &output, sign: &short) }
expect("This number of threads is not possible here; ask for 1 to EP_MAX_THREADS.") { _ = try Session(threads: -1) }
do {
    _ = try Session(threads: -1)
} catch let failure as Failure {
    precondition(failure.status == 6)
}
