package main

import (
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

// namespaceFlags select the namespace of the Services that are asked about.
type namespaceFlags struct{ namespace string }

func (f *namespaceFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.namespace, "namespace", "n", "",
		"`NAMESPACE` of the Services; a NAME without one is in it (default: all namespaces, and for a NAME that of the kubeconfig's context)")
}

// query returns what is asked about: all Services, those of a namespace, or the one that the argument names. A name
// without a namespace belongs to that of -n, else to that of the kubeconfig's context, as with kubectl. ofContext is
// nil if there is no context.
func (f *namespaceFlags) query(args []string, ofContext func() (string, error)) (explain.Query, error) {
	namespace := f.namespace
	if namespace != "" && !explain.IsName(namespace) {
		return explain.Query{}, fmt.Errorf("--namespace %q is not a namespace's name", namespace)
	}
	if len(args) == 0 {
		return explain.Query{Service: model.ObjectName{Namespace: namespace}}, nil
	}
	if namespace == "" && ofContext != nil {
		var err error
		if namespace, err = ofContext(); err != nil {
			namespace = metav1.NamespaceDefault // the next read of the cluster reports what is wrong with the kubeconfig
		}
	}
	query, err := explain.ParseQuery(args[0], namespace)
	if err == nil && f.namespace != "" && f.namespace != query.Service.Namespace {
		err = fmt.Errorf("%s is not in the namespace of --namespace, %s", query.Service, f.namespace)
	}
	return query, err
}
