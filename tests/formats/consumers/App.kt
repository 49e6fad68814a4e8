import edgepack.small.Small
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Uses the class of the small model: prints the outputs for the recorded input, a number a line. */
fun expect(expected: String, call: () -> Unit) {
    val said = try {
        call()
        "nothing"
    } catch (error: RuntimeException) {
        "${error.javaClass.simpleName}: ${error.message}"
    }
    check(said == expected) { said }
}

fun main(arguments: Array<String>) {
    val recorded = ByteBuffer.wrap(File(arguments[0]).readBytes()).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer()
    val input = FloatArray(Small.INPUT_ELEMENTS)
    recorded.get(input)
    val small = Small(threads = 2)
    small.use { model ->
        val outputs: Small.Outputs = model.run(input = input)
        for ((value, sign) in outputs.output.zip(outputs.sign.toTypedArray())) {
            println("$value $sign")
        }
        val output = FloatArray(Small.OUTPUT_ELEMENTS) { Float.NaN }
        val sign = ByteArray(Small.SIGN_ELEMENTS)
        model.run(sign = sign, output = output, input = input)
        check(output.contentEquals(outputs.output) && sign.contentEquals(outputs.sign))
        expect("IllegalArgumentException: input has 32 elements; the array has 31.") { model.run(FloatArray(31)) }
        expect("IllegalStateException: This number of threads is not possible here; ask for 1 to EP_MAX_THREADS.") {
            Small(-1)
        }
    }
    expect("IllegalStateException: It is closed.") { small.run(input) }
    Small().close()
}
