"""The schema of TFLite files as text: version 3, with what LiteRT 2.3 has added.

Enums' values and fields' defaults are not in it: they are those of the installed LiteRT. Fields are called as
flatc calls them in Python. Derived from ``tensorflow/compiler/mlir/lite/schema/schema.fbs`` (Apache-2.0); a
test compares it with LiteRT's classes. It is Python, and no ``.fbs`` file, for the cache knows sources by it.
"""

from __future__ import annotations

__all__ = ["SCHEMA"]

SCHEMA = """
enum ActivationFunctionType : byte;
enum CombinerType : byte;
enum CustomOptionsFormat : byte;
enum DimensionType : byte;
enum FullyConnectedOptionsWeightsFormat : byte;
enum LSHProjectionType : byte;
enum LSTMKernelType : byte;
enum MirrorPadMode : byte;
enum Padding : byte;
enum ReduceWindowFunction : int;
enum RngAlgorithm : byte;
enum StablehloComparisonDirection : uint;
enum StablehloComparisonType : uint;
enum TensorType : byte;
union BuiltinOptions;
union BuiltinOptions2;
union QuantizationDetails;
union SparseIndexVector;

table CustomQuantization { custom:[ubyte]; }
table BlockwiseQuantization { scales:int; zeroPoints:int; blockSize:int; blockShape:[int]; }
table MultiAxisQuantization { scales:int; zeroPoints:int; blockSize:int; quantizedDimensions:[int]; }
table QuantizationParameters {
    min:[float]; max:[float]; scale:[float]; zeroPoint:[long]; details:QuantizationDetails;
    quantizedDimension:int;
}
table Int32Vector { values:[int]; }
table Uint16Vector { values:[ushort]; }
table Uint8Vector { values:[ubyte]; }
table DimensionMetadata {
    format:DimensionType; denseSize:int; arraySegments:SparseIndexVector; arrayIndices:SparseIndexVector;
}
table SparsityParameters { traversalOrder:[int]; blockMap:[int]; dimMetadata:[DimensionMetadata]; }
table VariantSubType { shape:[int]; type:TensorType; hasRank:bool; }
table Tensor {
    shape:[int]; type:TensorType; buffer:uint; name:string; quantization:QuantizationParameters;
    isVariable:bool; sparsity:SparsityParameters; shapeSignature:[int]; hasRank:bool;
    variantTensors:[VariantSubType]; externalBuffer:uint;
}
table StablehloGatherOptions {
    offsetDims:[long]; collapsedSliceDims:[long]; startIndexMap:[long]; indexVectorDim:long;
    sliceSizes:[long]; indicesAreSorted:bool;
}
table StablehloTransposeOptions { permutation:[long]; }
table StablehloDotGeneralOptions {
    lhsBatchingDimensions:[long]; rhsBatchingDimensions:[long]; lhsContractingDimensions:[long];
    rhsContractingDimensions:[long]; precisionConfig:[uint];
}
table StablehloReduceWindowOptions {
    windowDimensions:[long]; windowStrides:[long]; baseDilations:[long]; windowDilations:[long];
    padding:[long]; bodySubgraphIndex:int;
}
table StablehloWhileOptions { condSubgraphIndex:int; bodySubgraphIndex:int; }
table StablehloSortOptions { dimension:long; isStable:bool; comparatorSubgraphIndex:int; }
table StablehloConcatenateOptions { dimension:long; }
table StablehloBroadcastInDimOptions { broadcastDimensions:[long]; }
table StablehloCompareOptions {
    comparisonDirection:StablehloComparisonDirection; compareType:StablehloComparisonType;
}
table StablehloDynamicSliceOptions { sliceSizes:[long]; }
table StablehloPadOptions { edgePaddingLow:[long]; edgePaddingHigh:[long]; interiorPadding:[long]; }
table StablehloIotaOptions { iotaDimension:long; }
table StablehloCustomCallOptions {
    callTargetName:string; hasSideEffect:bool; backendConfig:string; apiVersion:int;
    calledComputations:[int]; customAttributes:[ubyte];
}
table StablehloReduceOptions { dimensions:[long]; bodySubgraphIndex:int; }
table StablehloSliceOptions { startIndices:[long]; limitIndices:[long]; strides:[long]; }
table StablehloConvolutionOptions {
    windowStrides:[long]; padding:[long]; lhsDilation:[long]; rhsDilation:[long]; windowReversal:[bool];
    inputBatchDimension:long; inputFeatureDimension:long; inputSpatialDimensions:[long];
    kernelInputFeatureDimension:long; kernelOutputFeatureDimension:long; kernelSpatialDimensions:[long];
    outputBatchDimension:long; outputFeatureDimension:long; outputSpatialDimensions:[long];
    featureGroupCount:long; batchGroupCount:long; precisionConfig:[uint];
}
table StablehloScatterOptions {
    indicesAreSorted:bool; updateWindowDims:[long]; insertedWindowDims:[long];
    scatterDimsToOperandDims:[long]; indexVectorDim:long; uniqueIndices:bool;
    updateComputationSubgraphIndex:int;
}
table StablehloCaseOptions { branchSubgraphIndices:[int]; }
table StablehloRngBitGeneratorOptions { algorithm:RngAlgorithm; }
table Conv2DOptions {
    padding:Padding; strideW:int; strideH:int; fusedActivationFunction:ActivationFunctionType;
    dilationWFactor:int; dilationHFactor:int; quantizedBiasType:TensorType;
}
table Conv3DOptions {
    padding:Padding; strideD:int; strideW:int; strideH:int;
    fusedActivationFunction:ActivationFunctionType; dilationDFactor:int; dilationWFactor:int;
    dilationHFactor:int;
}
table Pool2DOptions {
    padding:Padding; strideW:int; strideH:int; filterWidth:int; filterHeight:int;
    fusedActivationFunction:ActivationFunctionType;
}
table DepthwiseConv2DOptions {
    padding:Padding; strideW:int; strideH:int; depthMultiplier:int;
    fusedActivationFunction:ActivationFunctionType; dilationWFactor:int; dilationHFactor:int;
}
table ConcatEmbeddingsOptions {
    numChannels:int; numColumnsPerChannel:[int]; embeddingDimPerChannel:[int];
}
table LSHProjectionOptions { type:LSHProjectionType; }
table SVDFOptions {
    rank:int; fusedActivationFunction:ActivationFunctionType; asymmetricQuantizeInputs:bool;
}
table RNNOptions { fusedActivationFunction:ActivationFunctionType; asymmetricQuantizeInputs:bool; }
table SequenceRNNOptions {
    timeMajor:bool; fusedActivationFunction:ActivationFunctionType; asymmetricQuantizeInputs:bool;
}
table BidirectionalSequenceRNNOptions {
    timeMajor:bool; fusedActivationFunction:ActivationFunctionType; mergeOutputs:bool;
    asymmetricQuantizeInputs:bool;
}
table FullyConnectedOptions {
    fusedActivationFunction:ActivationFunctionType; weightsFormat:FullyConnectedOptionsWeightsFormat;
    keepNumDims:bool; asymmetricQuantizeInputs:bool; quantizedBiasType:TensorType; quantSpec:[ubyte];
}
table SoftmaxOptions { beta:float; }
table ConcatenationOptions { axis:int; fusedActivationFunction:ActivationFunctionType; }
table AddOptions { fusedActivationFunction:ActivationFunctionType; potScaleInt16:bool; }
table MulOptions { fusedActivationFunction:ActivationFunctionType; }
table L2NormOptions { fusedActivationFunction:ActivationFunctionType; }
table LocalResponseNormalizationOptions { radius:int; bias:float; alpha:float; beta:float; }
table LSTMOptions {
    fusedActivationFunction:ActivationFunctionType; cellClip:float; projClip:float;
    kernelType:LSTMKernelType; asymmetricQuantizeInputs:bool;
}
table UnidirectionalSequenceLSTMOptions {
    fusedActivationFunction:ActivationFunctionType; cellClip:float; projClip:float; timeMajor:bool;
    asymmetricQuantizeInputs:bool; diagonalRecurrentTensors:bool;
}
table BidirectionalSequenceLSTMOptions {
    fusedActivationFunction:ActivationFunctionType; cellClip:float; projClip:float; mergeOutputs:bool;
    timeMajor:bool; asymmetricQuantizeInputs:bool;
}
table ResizeBilinearOptions {
    newHeight:int (deprecated); newWidth:int (deprecated); alignCorners:bool; halfPixelCenters:bool;
}
table ResizeNearestNeighborOptions { alignCorners:bool; halfPixelCenters:bool; }
table CallOptions { subgraph:uint; }
table ReshapeOptions { newShape:[int]; }
table SkipGramOptions { ngramSize:int; maxSkipSize:int; includeAllNgrams:bool; }
table SpaceToDepthOptions { blockSize:int; }
table DepthToSpaceOptions { blockSize:int; }
table SubOptions { fusedActivationFunction:ActivationFunctionType; potScaleInt16:bool; }
table DivOptions { fusedActivationFunction:ActivationFunctionType; }
table EmbeddingLookupSparseOptions { combiner:CombinerType; }
table GatherOptions { axis:int; batchDims:int; }
table ReducerOptions { keepDims:bool; }
table SqueezeOptions { squeezeDims:[int]; }
table SplitOptions { numSplits:int; }
table SplitVOptions { numSplits:int; }
table StridedSliceOptions {
    beginMask:int; endMask:int; ellipsisMask:int; newAxisMask:int; shrinkAxisMask:int; offset:bool;
}
table CastOptions { inDataType:TensorType; outDataType:TensorType; }
table ArgMaxOptions { outputType:TensorType; }
table ArgMinOptions { outputType:TensorType; }
table TransposeConvOptions {
    padding:Padding; strideW:int; strideH:int; fusedActivationFunction:ActivationFunctionType;
    quantizedBiasType:TensorType;
}
table SparseToDenseOptions { validateIndices:bool; }
table ShapeOptions { outType:TensorType; }
table FakeQuantOptions { min:float; max:float; numBits:int; narrowRange:bool; }
table PackOptions { valuesCount:int; axis:int; }
table OneHotOptions { axis:int; }
table UnpackOptions { num:int; axis:int; }
table LeakyReluOptions { alpha:float; }
table MirrorPadOptions { mode:MirrorPadMode; }
table UniqueOptions { idxOutType:TensorType; }
table ReverseSequenceOptions { seqDim:int; batchDim:int; }
table IfOptions { thenSubgraphIndex:int; elseSubgraphIndex:int; }
table CallOnceOptions { initSubgraphIndex:int; }
table WhileOptions { condSubgraphIndex:int; bodySubgraphIndex:int; }
table BatchMatMulOptions { adjX:bool; adjY:bool; asymmetricQuantizeInputs:bool; }
table CumsumOptions { exclusive:bool; reverse:bool; }
table HashtableOptions { tableId:int; keyDtype:TensorType; valueDtype:TensorType; }
table VarHandleOptions { container:string; sharedName:string; }
table RandomOptions { seed:long; seed2:long; }
table BucketizeOptions { boundaries:[float]; }
table GeluOptions { approximate:bool; }
table ReduceWindowOptions { reduceFunction:ReduceWindowFunction; }
table OperatorCode { deprecatedBuiltinCode:byte; customCode:string; version:int; builtinCode:int; }
table StableHLOCompositeOptions {
    name:string; decompositionSubgraphIndex:int; compositeAttributes:[ubyte];
    compositeAttributesFormat:CustomOptionsFormat; version:int;
}
table Operator {
    opcodeIndex:uint; inputs:[int]; outputs:[int]; builtinOptions:BuiltinOptions; customOptions:[ubyte];
    customOptionsFormat:CustomOptionsFormat; mutatingVariableInputs:[bool]; intermediates:[int];
    largeCustomOptionsOffset:ulong; largeCustomOptionsSize:ulong; builtinOptions2:BuiltinOptions2;
    debugMetadataIndex:int;
}
table SubGraph {
    tensors:[Tensor]; inputs:[int]; outputs:[int]; operators:[Operator]; name:string;
    debugMetadataIndex:int;
}
table Buffer { data:[ubyte]; offset:ulong; size:ulong; }
table ExternalBufferGroup { name:string; }
table ExternalBuffer { id:uint; group:uint; offset:ulong; length:ulong; packing:string; }
table Metadata { name:string; buffer:uint; }
table TensorMap { name:string; tensorIndex:uint; }
table SignatureDef {
    inputs:[TensorMap]; outputs:[TensorMap]; signatureKey:string; methodName:string (deprecated);
    subgraphIndex:uint;
}
table Model {
    version:uint; operatorCodes:[OperatorCode]; subgraphs:[SubGraph]; description:string;
    buffers:[Buffer]; metadataBuffer:[int]; metadata:[Metadata]; signatureDefs:[SignatureDef];
    externalBufferGroups:[ExternalBufferGroup]; externalBuffers:[ExternalBuffer];
}

table PadOptions { } table PadV2Options { } table SpaceToBatchNDOptions { }
table BatchToSpaceNDOptions { } table TopKV2Options { } table TransposeOptions { } table ExpOptions { }
table CosOptions { } table LogSoftmaxOptions { } table DequantizeOptions { }
table MaximumMinimumOptions { } table TileOptions { } table GreaterOptions { }
table GreaterEqualOptions { } table LessOptions { } table LessEqualOptions { } table NegOptions { }
table SelectOptions { } table SliceOptions { } table ExpandDimsOptions { } table EqualOptions { }
table NotEqualOptions { } table RankOptions { } table PowOptions { } table LogicalOrOptions { }
table AbsOptions { } table HardSwishOptions { } table LogicalAndOptions { } table LogicalNotOptions { }
table FloorDivOptions { } table SquareOptions { } table ZerosLikeOptions { } table FillOptions { }
table FloorModOptions { } table RangeOptions { } table SquaredDifferenceOptions { }
table ReverseV2Options { } table AddNOptions { } table GatherNdOptions { } table WhereOptions { }
table MatrixDiagOptions { } table QuantizeOptions { } table MatrixSetDiagOptions { }
table NonMaxSuppressionV4Options { } table NonMaxSuppressionV5Options { } table ScatterNdOptions { }
table SelectV2Options { } table DensifyOptions { } table SegmentSumOptions { }
table BroadcastToOptions { } table Rfft2dOptions { } table HashtableFindOptions { }
table HashtableImportOptions { } table HashtableSizeOptions { } table ReadVariableOptions { }
table AssignVariableOptions { } table DynamicUpdateSliceOptions { } table UnsortedSegmentProdOptions { }
table UnsortedSegmentMaxOptions { } table UnsortedSegmentSumOptions { } table ATan2Options { }
table UnsortedSegmentMinOptions { } table SignOptions { } table BitcastOptions { }
table BitwiseXorOptions { } table RightShiftOptions { } table DilateOptions { }
table StablehloShiftLeftOptions { }
"""
