package policy

import (
	"errors"
	"time"
)

// EvacuateLabel on a Node takes its endpoints out of new connections, as long as others may serve in their place: "true",
// or the time at which that ends (EvacuateEnd). "false" is as good as no label.
const EvacuateLabel = Domain + "evacuate"

// EvacuateEnd is how the end of an evacuation is written, in UTC: "20261122T1800Z". A label's value has no room for a
// colon.
const EvacuateEnd = "20060102T1504Z"

// ParseEvacuate reads the value of EvacuateLabel: whether the Node is evacuated, and until when; zero: until the label
// goes.
func ParseEvacuate(value string) (evacuated bool, until time.Time, err error) {
	switch value {
	case "true":
		return true, time.Time{}, nil
	case "false":
		return false, time.Time{}, nil
	}
	if until, err = time.Parse(EvacuateEnd, value); err != nil {
		return false, time.Time{}, errors.New(`must be "true", "false", or a time such as "20261122T1800Z", in UTC`)
	}
	return true, until, nil
}
