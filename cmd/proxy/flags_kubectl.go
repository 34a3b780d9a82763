package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
)

// kubectlFlags say which cluster is asked, as kubectl's do. Only commands for people have them, and no node runs those.
type kubectlFlags struct {
	manifestsFlag
	kubeconfig, context string
}

func (f *kubectlFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.manifests, "manifests", "",
		"`PATH` of a folder with Services, EndpointSlices, Nodes and, if there are any, ServiceDemands in "+
			".yaml, .yml and .json files, as 'kubectl get -o yaml' prints them, or of one such file. "+orStdin+"No API server is contacted then")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server (default: as kubectl finds it)")
	flags.StringVar(&f.context, "context", "", "`NAME` of the context in the kubeconfig (default: the current one)")
}

// Validate checks that the state comes from one place.
func (f *kubectlFlags) Validate() error {
	if f.manifests != "" && (f.kubeconfig != "" || f.context != "") {
		return errors.New("--manifests excludes --kubeconfig and --context")
	}
	return nil
}

// ofContext returns the namespace of the kubeconfig's context; nil if no kubeconfig is read.
func (f *kubectlFlags) ofContext() func() (string, error) {
	if f.manifests != "" {
		return nil
	}
	return f.connection().Namespace
}

func (f *kubectlFlags) connection() kube.Connection {
	return kube.Connection{
		AsKubectl: true, Kubeconfig: f.kubeconfig, Context: f.context, UserAgent: "vicinity-proxy/" + thisBuild().Version,
		Timeout: requestTimeout,
	}
}
