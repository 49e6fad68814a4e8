// Says what an image shows. The image is drawn here; yours comes from a file or a camera.
import stripesSwift

let names = ["plain", "horizontal", "vertical"]

/// Red, green and blue, one plane after the other, from 0 to 1: stripes of four pixels in rows of 64.
func verticalStripes() -> [Float] {
    return (0..<Elements.image).map { $0 % 64 / 4 % 2 == 0 ? 0.2 : 0.8 }
}

let session = try Session()
let classes = try session.run(image: verticalStripes())
let best = classes.indices.max { classes[$0] < classes[$1] }!
print("\(names[best]) (\((classes[best] * 1000).rounded() / 1000))")
