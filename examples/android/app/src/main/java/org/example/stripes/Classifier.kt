package org.example.stripes

import edgepack.stripes.Stripes

/** Says what an image shows. One image at a time; to be closed. */
class Classifier(threads: Int = 2) : AutoCloseable {
    private val model = Stripes(threads)
    private val image = FloatArray(Stripes.IMAGE_ELEMENTS)

    /** @param pixels rows of [WIDTH] pixels as `Bitmap.getPixels` gives them: alpha, red, green, blue. */
    fun classify(pixels: IntArray): String {
        require(pixels.size == WIDTH * HEIGHT) { "an image has $WIDTH x $HEIGHT pixels" }
        for ((i, pixel) in pixels.withIndex()) {
            for (channel in 0..2) {
                image[channel * pixels.size + i] = (pixel shr (16 - 8 * channel) and 0xff) / 255f
            }
        }
        val classes = model.run(image = image)
        val best = classes.indices.maxByOrNull { classes[it] } ?: 0
        return NAMES[best]
    }

    override fun close() = model.close()

    companion object {
        const val WIDTH = 64
        const val HEIGHT = 48
        private val NAMES = listOf("plain", "horizontal", "vertical")
    }
}
