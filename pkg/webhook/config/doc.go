// Package config reads an administrator's configuration of the admission webhook: a TopologyAdmissionConfiguration,
// version vicinity.dev/v1alpha1. testdata/example.yaml has every field.
//
// The file is read strictly. A field that is unknown or set twice, a rule that does not exist, a value that means
// nothing: each is refused with its line and field, and if something similar exists that is named. Unknown
// fields are reported once every value has the right type.
//
//	config.yaml:7: rules.SCV027: Unsupported value: "SCV027": there is no such rule; did you mean SVC027?
//
// A file that changes is read again. If it is wrong, the last good one stays in force.
package config
