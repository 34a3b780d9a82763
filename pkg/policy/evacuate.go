package policy

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// EvacuateLabel on a Node excludes its endpoints from new connections while other endpoints can serve them. The value
// is "true", or the time at which the evacuation ends (EvacuateEnd). "false" and invalid values mean the same as no
// label.
const EvacuateLabel = Domain + "evacuate"

// EvacuateEnd is the format of the end of an evacuation, in UTC: "20261122T1800Z". A label's value must not contain a
// colon.
const EvacuateEnd = "20060102T1504Z"

// DrainConditions are the conditions with which an administrator marks a Node that is being drained or under
// maintenance (Kubernetes 1.37). No Kubernetes component sets or reads them. If a Node has several, the first in its
// list applies.
var DrainConditions = [...]corev1.NodeConditionType{
	corev1.NodeDrainInProgress, corev1.NodeMaintenanceInProgress, corev1.NodeGracefulNodeShutdownInProgress,
}

func checkEvacuate(value string) error {
	_, _, err := ParseEvacuate(value)
	return err
}

// ParseEvacuate parses a value of EvacuateLabel: whether the Node is being evacuated, and until when. A nil time means
// until the label is removed. Case is ignored, as in command lines and configurations.
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
