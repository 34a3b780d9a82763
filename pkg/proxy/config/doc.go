// Package config reads kube-proxy's configuration, kubeproxy.config.k8s.io/v1alpha1, so that the ConfigMap of a
// cluster works as it is.
//
// Only this package knows which settings kube-proxy has, and which have no meaning here: a setting is named by
// its field path in the file, such as conntrack.maxPerCore, and the reader of flags sets the same fields. Resolve
// makes plain Settings of them.
//
// A file is read more strictly than by kube-proxy: a field that is misspelled or set twice is a mistake, if what is meant
// counts here. Any other unknown field is reported in a note (unknown.go).
package config
