package convert

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Evacuation reads from a node's labels whether it is being evacuated; nil: it is not. It refuses what is neither true
// nor false nor a time. One that has ended is an evacuation still: the clock is others' matter.
func Evacuation(labels map[string]string) (*model.Evacuation, field.ErrorList) {
	value, labelled := labels[policy.EvacuateLabel]
	if !labelled {
		return nil, nil
	}
	evacuated, until, err := policy.ParseEvacuate(value)
	if err != nil {
		path := field.NewPath("metadata", "labels").Key(policy.EvacuateLabel)
		return nil, field.ErrorList{field.Invalid(path, value, err.Error())}
	}
	if !evacuated {
		return nil, nil
	}
	return &model.Evacuation{Until: until}, nil
}
