package policy

import "fmt"

// Measured is the value of DemandSourceAnnotation: demand is what was measured.
const Measured = "measured"

// CheckDemandSource returns what is wrong with a value of DemandSourceAnnotation, and what to write.
func CheckDemandSource(value string) error {
	if value == Measured {
		return nil
	}
	return fmt.Errorf("%.*q is no demand source; the only one is %q", maxQuoted, value, Measured)
}
