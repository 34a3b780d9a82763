package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// stateFlags say where the state of the cluster comes from, and from which node it is seen. All commands that decide
// something have them.
type stateFlags struct {
	manifests string
	node      string
}

func (f *stateFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.manifests, "manifests", "",
		"`DIR` with Services, EndpointSlices, Nodes and ServiceCIDRs in .yaml, .yml and .json files, as 'kubectl get -o yaml' prints "+
			"them (required)")
	flags.StringVar(&f.node, "node", "", "`NAME` of the node to act for (default: this machine's host name in lower case)")
}

// Validate checks the flags, fills in the node's name, and tells every mistake at once.
func (f *stateFlags) Validate() error {
	var manifests error
	if f.manifests == "" {
		manifests = errors.New("--manifests DIR is required: it is where the Services come from")
	}
	var node error
	f.node, node = nodeName(f.node)
	return errors.Join(manifests, node)
}

// nodeName returns the node's name as kubelet and kube-proxy do: the host name unless another one is given, in lower case.
func nodeName(given string) (string, error) {
	name := strings.ToLower(strings.TrimSpace(given))
	if name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--node is missing and the host name is unknown: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(host)), nil
}

// oneOf checks the value of a flag that has only a few.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s %q is none of: %s", flag, value, strings.Join(allowed, ", "))
}
