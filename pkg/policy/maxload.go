package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// A bound is a percentage of the mean load. A bound below the mean cannot be met, and above ten times the mean there is
// no endpoint to protect.
const (
	MinLoadBound = 100
	MaxLoadBound = 1000
)

// DefaultLoadBound is the bound if one is requested without a number. Mode Auto tolerates the same.
const DefaultLoadBound = 120

// InvalidMaxLoad is the end of a sentence about a text that is not a bound, with the remedy.
const InvalidMaxLoad = `must be an integer from 100 to 1000, directly followed by %; write a percentage of the mean load, such as "120%"`

// ParseMaxLoad parses a bound: an integer from 100 to 1000, directly followed by %.
func ParseMaxLoad(text string) (percent uint64, err error) {
	if number, found := strings.CutSuffix(text, "%"); found {
		percent, err := strconv.ParseUint(number, 10, 32)
		if err == nil && MinLoadBound <= percent && percent <= MaxLoadBound && number[0] != '0' {
			return percent, nil
		}
	}
	return 0, fmt.Errorf("%.*q %s", maxQuoted, text, InvalidMaxLoad)
}

// FormatMaxLoad formats a bound so that ParseMaxLoad can parse it.
func FormatMaxLoad(percent uint64) string { return strconv.FormatUint(percent, 10) + "%" }
