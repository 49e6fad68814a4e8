package org.example.stripes

import android.app.Activity
import android.graphics.Bitmap
import android.graphics.Canvas
import android.graphics.Color
import android.graphics.Paint
import android.os.Bundle
import android.widget.TextView
import kotlin.concurrent.thread

/** Draws stripes and shows what the model says of them. */
class MainActivity : Activity() {
    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        val view = TextView(this)
        setContentView(view)
        // Loading the class opens the model: not on the main thread.
        thread {
            val text = try {
                Classifier().use { it.classify(pixels()) }
            } catch (error: RuntimeException) {
                error.message ?: error.toString()
            }
            runOnUiThread { view.text = text }
        }
    }

    private fun pixels(): IntArray {
        val bitmap = Bitmap.createBitmap(Classifier.WIDTH, Classifier.HEIGHT, Bitmap.Config.ARGB_8888)
        val canvas = Canvas(bitmap)
        val paint = Paint().apply { color = Color.WHITE }
        for (x in 0 until Classifier.WIDTH step 8) {
            canvas.drawRect(x.toFloat(), 0f, x + 4f, Classifier.HEIGHT.toFloat(), paint)
        }
        val pixels = IntArray(Classifier.WIDTH * Classifier.HEIGHT)
        bitmap.getPixels(pixels, 0, Classifier.WIDTH, 0, 0, Classifier.WIDTH, Classifier.HEIGHT)
        return pixels
    }
}
