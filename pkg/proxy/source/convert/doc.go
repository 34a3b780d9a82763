// Package convert converts objects of the Kubernetes API into values of package model. It is pure: it does not read,
// watch or log anything.
//
// An invalid object is rejected, as a finding that names the field; all other objects are processed. A single part of
// an object (one of many endpoints, ports or addresses) is skipped if that keeps connections away from wrong
// destinations and the rest can serve (skipped.go). An Update is what the sources deliver: the changes, the new
// problems, and the resolved ones.
//
// To add a kind of object, or change which objects are requested from an API server, see kinds.go. To change which
// labels and annotations are read, and when a value counts as absent, see settings.go. limits.go bounds the size of a
// Service, rejection.go defines what status shows of invalid objects, inventory.go describes the objects that manifests
// lack, and not_served.go the reasons why a Service is not ours.
package convert
