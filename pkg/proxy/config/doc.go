// Package config reads kube-proxy's configuration, kubeproxy.config.k8s.io/v1alpha1, so that the ConfigMap of a cluster
// works unchanged.
//
// Only this package knows which settings kube-proxy has, and which have no meaning here. A setting is named by its
// field path in the file, such as conntrack.maxPerCore; flags set the same fields. Resolve converts a Configuration to
// Settings.
//
// A file is read more strictly than by kube-proxy: a field that is misspelled or set twice is an error if the intended
// field has a meaning here. Any other unknown field causes a note (unknown.go).
//
// Where to make a change: a setting of kube-proxy's file is in settings.go, one without meaning here in ignored.go, and
// one with another effect in differences.go. unknown.go decides which unknown fields are errors. gates.go has the
// feature gates that change kube-proxy, and feature_gates.txt all gates of Kubernetes. warnings.go has warnings about
// settings, and compare.go what `run --check` reports about a file. Settings of our own are flags of `proxy run` in
// cmd/proxy; vicinity.go and cmd/proxy/flags_vicinity.go derive their fields. print.go writes /configz, which `status`,
// `flows` and `explain` read.
package config
