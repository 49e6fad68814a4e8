import edgepack.small.Small;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/** Uses the class of the small model: prints the outputs for the recorded input, a number a line. */
class App {
    interface Call {
        void run();
    }

    static String thrown(Call call) {
        try {
            call.run();
            return "nothing";
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    static void expect(String expected, Call call) {
        String said = thrown(call);
        if (!said.equals(expected)) {
            throw new AssertionError(said);
        }
    }

    public static void main(String[] arguments) throws IOException {
        FloatBuffer recorded =
                ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0]))).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        float[] input = new float[Small.INPUT_ELEMENTS];
        recorded.get(input);
        float[] output = new float[Small.OUTPUT_ELEMENTS];
        byte[] sign = new byte[Small.SIGN_ELEMENTS];
        Small small = new Small(2);
        small.run(input, output, sign);
        for (int i = 0; i < output.length; i++) {
            System.out.println(output[i] + " " + sign[i]);
        }
        expect("IllegalArgumentException: input has 32 elements; the array has 31.",
                () -> small.run(new float[31], output, sign));
        expect("IllegalArgumentException: sign has 32 elements; the array has 1000000.",
                () -> small.run(input, output, new byte[1000000]));
        expect("NullPointerException: output is null.", () -> small.run(input, null, sign));
        expect("IllegalStateException: This number of threads is not possible here; ask for 1 to EP_MAX_THREADS.",
                () -> new Small(-1));
        small.close();
        small.close();
        expect("IllegalStateException: It is closed.", () -> small.run(input, output, sign));
    }
}
