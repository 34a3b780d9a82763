// Package config parses the admission webhook's configuration file: a TopologyAdmissionConfiguration, version
// vicinity.dev/v1alpha1. testdata/example.yaml has every field.
//
// The file is parsed strictly. Unknown or duplicate fields, unknown rules and invalid values are errors, each with its
// line and field, and with a suggestion if a known name is similar. Unknown fields are reported once every value has
// the right type.
//
//	config.yaml:7: rules.SCV027: Unsupported value: "SCV027": there is no such rule; did you mean SVC027?
//
// The file is reloaded when it changes. If the new version is invalid, the last valid one stays active. To add a
// setting, start in parse.go.
package config
