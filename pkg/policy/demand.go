package policy

import (
	"errors"
	"strconv"
)

// DemandLabel on a Node says how much demand it has, relative to other nodes: a whole number from 0 to MaxDemand.
const DemandLabel = Domain + "demand-weight"

// MaxDemand is the largest value of DemandLabel. A kubelet may label its own node, so one node must not outweigh a
// cluster.
const MaxDemand = 100

func checkDemand(value string) error {
	if _, valid := ParseDemand(value); !valid {
		return errors.New("must be a whole number from 0 to 100")
	}
	return nil
}

// ParseDemand reads the value of DemandLabel, and reports whether it is one: decimal digits, and nothing else.
func ParseDemand(value string) (demand uint32, valid bool) {
	number, err := strconv.ParseUint(value, 10, 32)
	if err != nil || number > MaxDemand {
		return 0, false
	}
	return uint32(number), true
}

// kubeadm puts both on its control plane. Where servers run pods too, the second is absent: it would keep load
// balancers out.
const (
	ControlPlaneLabel = "node-role.kubernetes.io/control-plane"
	NoBalancersLabel  = "node.kubernetes.io/exclude-from-external-load-balancers"
)

// OSLabel on a Node says its operating system, as its kubelet reports it.
const OSLabel = "kubernetes.io/os"

// IsLinux reports whether a node with these labels can run a proxy of ours. Without the label it can. On other systems another
// proxy leads clients: it follows no topology keys and no bounds, so they are no part of any plan.
func IsLinux(labels map[string]string) bool {
	system, labelled := labels[OSLabel]
	return !labelled || system == "linux"
}

// DemandLabels are the labels of a Node that say how much demand it has, and whether plans are for it.
var DemandLabels = [...]Key{DemandLabel, ControlPlaneLabel, NoBalancersLabel, OSLabel}

// DemandOf returns the expected demand of a node with these labels, relative to other nodes: what DemandLabel says,
// else 0 on a control plane of its own, else 1. A malformed label counts as absent, and is reported as invalid.
func DemandOf(labels map[string]string) (demand uint32, valid bool) {
	valid = true
	if value, labelled := labels[DemandLabel]; labelled {
		if demand, valid = ParseDemand(value); valid {
			return demand, true
		}
	}
	_, controls := labels[ControlPlaneLabel]
	_, spared := labels[NoBalancersLabel]
	if controls && spared {
		return 0, valid
	}
	return 1, valid
}
