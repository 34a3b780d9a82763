package convert

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Evacuation reads from a node's labels whether it is being evacuated; nil: it is not. One that has ended is an evacuation
// still: the clock is others' matter.
func Evacuation(labels map[string]string) *model.Avoid {
	value, labelled := labels[policy.EvacuateLabel]
	if !labelled {
		return nil
	}
	evacuated, until, err := policy.ParseEvacuate(value)
	if err != nil || !evacuated {
		return nil // of what cannot be read, Kind.Ignored says why
	}
	return &model.Avoid{Why: model.Evacuated, Until: until}
}
