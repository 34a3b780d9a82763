package policy

import "fmt"

// Measured is the value of DemandSourceAnnotation for measured demand.
const Measured = "measured"

// CheckDemandSource returns an error that names the valid value if a value of DemandSourceAnnotation is invalid.
func CheckDemandSource(value string) error {
	if value == Measured {
		return nil
	}
	return fmt.Errorf("%.*q is not a demand source; the only one is %q", maxQuoted, value, Measured)
}
