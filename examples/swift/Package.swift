// swift-tools-version:5.5
import PackageDescription

let package = Package(
    name: "app",
    platforms: [.macOS("11.0")],
    dependencies: [.package(name: "stripes", path: "stripes-1.0.0")],
    targets: [
        .executableTarget(name: "app", dependencies: [.product(name: "stripes", package: "stripes")]),
    ]
)
