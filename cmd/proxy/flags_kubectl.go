package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// kubectlFlags select the cluster, like kubectl's flags. Only commands that users run have them, never commands that
// run on nodes.
type kubectlFlags struct {
	manifestsFlag
	kubeconfig, context string
}

func (f *kubectlFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.manifests, "manifests", "",
		"`PATH` of a folder with Services, EndpointSlices, Nodes and, if there are any, ServiceDemands in "+
			".yaml, .yml and .json files, as 'kubectl get -o yaml' prints them, or of one such file. "+orStdin+"No API server is contacted then")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the kubeconfig (default: the one that kubectl would use)")
	flags.StringVar(&f.context, "context", "", "`NAME` of the context in the kubeconfig (default: the current one)")
}

// Validate checks that the state has a single source.
func (f *kubectlFlags) Validate() error {
	if f.manifests != "" && (f.kubeconfig != "" || f.context != "") {
		return errors.New("--manifests excludes --kubeconfig and --context")
	}
	return nil
}

// contextNamespace returns the namespace of the kubeconfig's context; nil if no kubeconfig is read.
func (f *kubectlFlags) contextNamespace() func() (string, error) {
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

// namespaceFlags select the namespace of the requested Services.
type namespaceFlags struct{ namespace string }

func (f *namespaceFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.namespace, "namespace", "n", "",
		"`NAMESPACE` of the Services, also of a NAME without one "+
			"(default: all namespaces; for a NAME, the namespace of the kubeconfig's context)")
}

// query returns which Services are requested: all, all of a namespace, or the one named by the argument. A name
// without a namespace is in the namespace given by -n, or else in the namespace of the kubeconfig's context, as in
// kubectl. contextNamespace is nil if there is no context.
func (f *namespaceFlags) query(args []string, contextNamespace func() (string, error)) (explain.Query, error) {
	namespace := f.namespace
	if namespace != "" && !explain.IsName(namespace) {
		return explain.Query{}, fmt.Errorf("--namespace %q is not a valid namespace name", namespace)
	}
	if len(args) == 0 {
		return explain.Query{Service: model.ObjectName{Namespace: namespace}}, nil
	}
	if namespace == "" && contextNamespace != nil {
		var err error
		if namespace, err = contextNamespace(); err != nil {
			namespace = metav1.NamespaceDefault // the next read of the cluster reports the error in the kubeconfig
		}
	}
	query, err := explain.ParseQuery(args[0], namespace)
	if err == nil && f.namespace != "" && f.namespace != query.Service.Namespace {
		err = fmt.Errorf("%s is not in the namespace of --namespace, %s", query.Service, f.namespace)
	}
	return query, err
}
