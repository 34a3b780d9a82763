package demand

import "math"

// Without switches off one part of the estimator. The returned function switches it on again.
func Without(part string) (restore func()) {
	one, shrink, publish, comparisons := changeSigmas, shrinkSigmas, publishSigmas, baseZones
	least, band, weight, reversal := minConnections, relativeBand, publishedWeight, reversalTime
	switch part {
	case "change-points":
		changeSigmas = math.Inf(1)
	case "shrinkage":
		shrinkSigmas = 0
	case "many comparisons":
		baseZones = math.Inf(1)
	case "noise band":
		publishSigmas = 0
	case "relative band":
		relativeBand = 0
	case "least number":
		minConnections = 1
	case "inherited window":
		publishedWeight = 0
	case "oscillation":
		reversalTime = 0
	}
	return func() {
		changeSigmas, shrinkSigmas, publishSigmas, baseZones = one, shrink, publish, comparisons
		minConnections, relativeBand, publishedWeight, reversalTime = least, band, weight, reversal
	}
}
