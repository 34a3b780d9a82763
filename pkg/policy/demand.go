package policy

import (
	"errors"
	"strconv"
)

// DemandLabel on a Node is its demand relative to other nodes: an integer from 0 to MaxDemand.
const DemandLabel = Domain + "demand-weight"

// MaxDemand is the largest value of DemandLabel. A kubelet may label its own node, so one node must not be able to
// outweigh a cluster.
const MaxDemand = 100

func checkDemand(value string) error {
	if _, valid := ParseDemand(value); !valid {
		return errors.New("must be a whole number from 0 to 100")
	}
	return nil
}

// ParseDemand parses a value of DemandLabel. Only decimal digits are valid.
func ParseDemand(value string) (demand uint32, valid bool) {
	number, err := strconv.ParseUint(value, 10, 32)
	if err != nil || number > MaxDemand {
		return 0, false
	}
	return uint32(number), true
}

// kubeadm sets both on control plane nodes. Where control plane nodes run pods too, the second is absent, because it
// would exclude them from load balancers.
const (
	ControlPlaneLabel = "node-role.kubernetes.io/control-plane"
	NoBalancersLabel  = "node.kubernetes.io/exclude-from-external-load-balancers"
)

// OSLabel on a Node is its operating system, as its kubelet reports it.
const OSLabel = "kubernetes.io/os"

// IsLinux reports whether a node with these labels can run this proxy. A node without the label can. On other systems
// another proxy serves clients, without topology keys and bounds, so no plan includes them.
func IsLinux(labels map[string]string) bool {
	system, labelled := labels[OSLabel]
	return !labelled || system == "linux"
}

// DemandLabels are the Node labels that determine a Node's demand, and whether plans include it.
var DemandLabels = [...]Key{DemandLabel, ControlPlaneLabel, NoBalancersLabel, OSLabel}

// DemandOf returns the expected demand of a node with these labels, relative to other nodes: the value of DemandLabel,
// or else 0 on a dedicated control plane node, or else 1. A malformed DemandLabel counts as absent, and valid is then
// false.
func DemandOf(labels map[string]string) (demand uint32, valid bool) {
	valid = true
	if value, labelled := labels[DemandLabel]; labelled {
		if demand, valid = ParseDemand(value); valid {
			return demand, true
		}
	}
	_, isControlPlane := labels[ControlPlaneLabel]
	_, isExcluded := labels[NoBalancersLabel]
	if isControlPlane && isExcluded {
		return 0, valid
	}
	return 1, valid
}
