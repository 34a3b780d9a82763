package policy

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// EvacuateLabel on a Node takes its endpoints out of new connections, as long as others may serve in their place:
// "true", or the time at which that ends (EvacuateEnd). "false" means the same as no label, and so does a value that
// cannot be read.
const EvacuateLabel = Domain + "evacuate"

// EvacuateEnd is how the end of an evacuation is written, in UTC: "20261122T1800Z". A label's value has no room for a
// colon.
const EvacuateEnd = "20060102T1504Z"

// DrainConditions are the conditions with which an administrator says that a Node is losing its pods, or is being worked on
// (Kubernetes 1.37). Nothing in Kubernetes sets or reads them. If a Node has several, the first one that it lists
// counts.
var DrainConditions = [...]corev1.NodeConditionType{
	corev1.NodeDrainInProgress, corev1.NodeMaintenanceInProgress, corev1.NodeGracefulNodeShutdownInProgress,
}

func checkEvacuate(value string) error {
	_, _, err := ParseEvacuate(value)
	return err
}

// ParseEvacuate reads the value of EvacuateLabel: whether the Node is evacuated, and until when; nil: until the label
// goes. Upper and lower case of the words do not matter, as in command lines and configurations.
func ParseEvacuate(value string) (evacuated bool, until *time.Time, err error) {
	switch strings.ToLower(value) {
	case "true":
		return true, nil, nil
	case "false":
		return false, nil, nil
	}
	end, err := time.Parse(EvacuateEnd, value)
	if err != nil {
		return false, nil, errors.New(`must be "true", "false", or a time such as "20261122T1800Z", in UTC`)
	}
	return true, &end, nil
}
