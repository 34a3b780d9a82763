package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Finding reports that an object, or a part of it, does not work, and why. The code that detects the problem creates
// it; the log, Events, pages and explain print it. It is active until the object or file is corrected.
type Finding struct {
	File string     // relative to the folder; empty for an object in a cluster
	Kind string     // "Service"; empty if the file or one of its documents could not be read
	Name ObjectName // without a namespace if the kind is cluster-scoped
	UID  string     // of an object in a cluster, if it is known where the finding is created
	Line int        // of the document, for an object without a name; otherwise zero

	Code FindingCode
	// Field is the part of the object that does not work: "spec.ports[0].port", or the name of an annotation. It is empty
	// if no single field is the cause.
	Field  string
	Reason string // for users
	// Local is set if the finding applies only to this node. Otherwise it follows from the cluster's objects and is the
	// same on all nodes.
	Local bool
}

// FindingCode is a stable code that alerts can use. It is the reason of Events.
type FindingCode string

// The codes. policy.Annotations has the codes of annotations without effect.
const (
	// Invalid means that the object is skipped, and its last valid version stays active.
	Invalid FindingCode = "Invalid"
	// ValueIgnored means that a label or annotation counts as absent because its value is invalid.
	ValueIgnored FindingCode = "ValueIgnored"
	// PartiallyIgnored means that a part of the object is ignored and the rest is served.
	PartiallyIgnored FindingCode = "PartiallyIgnored"
	// FrontendConflict means that another Service owns a frontend, FrontendIsAPIServer that the proxy reaches the API
	// server there, FrontendIsProbed that proxies probe nodes there.
	FrontendConflict    FindingCode = "FrontendConflict"
	FrontendIsAPIServer FindingCode = "FrontendIsAPIServer"
	FrontendIsProbed    FindingCode = "FrontendIsProbed"
	// SessionAffinityIgnored means that the Service has no session affinity.
	SessionAffinityIgnored FindingCode = "SessionAffinityIgnored"
	// FailedToProgram means that the kernel rejects the Service's newest version.
	FailedToProgram FindingCode = "FailedToProgram"
	// HealthCheckListenFailed means that load balancers get no reply at the Service's healthCheckNodePort. The name is
	// kube-proxy's.
	HealthCheckListenFailed FindingCode = "FailedToStartServiceHealthcheck"
	// LocalhostNodePortNotServed means that a node port of the Service cannot be dialled on a loopback address.
	LocalhostNodePortNotServed FindingCode = "LocalhostNodePortNotServed"
)

// FindingCodes are all codes.
var FindingCodes = func() []FindingCode {
	codes := []FindingCode{
		Invalid, ValueIgnored, PartiallyIgnored, FrontendConflict, FrontendIsAPIServer, FrontendIsProbed, SessionAffinityIgnored,
		FailedToProgram, HealthCheckListenFailed, LocalhostNodePortNotServed,
	}
	for _, annotation := range policy.Annotations {
		if code := FindingCode(annotation.IgnoredCode); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	return codes
}()

// IsAnnotation reports whether the code means that an annotation has no effect.
func (c FindingCode) IsAnnotation() bool {
	return slices.ContainsFunc(policy.Annotations[:], func(a policy.Annotation) bool { return FindingCode(a.IgnoredCode) == c })
}

// Object returns the object as users write it: "Service default/web", "Node node-1". It is empty if there is no object
// to name.
func (f Finding) Object() string {
	switch {
	case f.Kind == "":
		return ""
	case f.Line > 0:
		return fmt.Sprintf("%s in the document at line %d", f.Kind, f.Line)
	case f.Name.Namespace == "":
		return f.Kind + " " + sanitize.Truncate(f.Name.Name)
	}
	return f.Kind + " " + sanitize.Truncate(f.Name.String())
}

// Sentence returns what does not work, and why: "spec.ports[0].port: Invalid value: 70000: ...".
func (f Finding) Sentence() string {
	if f.Field == "" {
		return f.Reason
	}
	return f.Field + ": " + f.Reason
}

// String returns the finding as one line:
// "services.yaml: Service default/web: spec.ports[0].port: Invalid value: 70000: ...".
func (f Finding) String() string {
	var parts []string
	for _, part := range []string{f.File, f.Object(), f.Sentence()} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	sentence := strings.Join(parts, ": ")
	if f.Code == ValueIgnored {
		sentence += "; it counts as absent"
	}
	return sentence
}

// Error implements the error interface.
func (f Finding) Error() string { return f.String() }

// IsRejection reports whether the object or file as a whole is invalid.
func (f Finding) IsRejection() bool { return f.Code == Invalid }

// IsInvalidInput reports whether the object, or one of its labels or annotations, could not be parsed. All other
// findings are about valid input.
func (c FindingCode) IsInvalidInput() bool { return c == Invalid || c == ValueIgnored }

// Subject is the object that a finding is about, or the file if there is no object.
type Subject struct {
	File, Kind string
	Name       ObjectName
}

// SubjectOf returns the object as a subject, or the file if the name is empty.
func SubjectOf(file, kind string, name ObjectName) Subject {
	if name != (ObjectName{}) {
		file = "" // because an object may move to another file
	}
	return Subject{file, kind, name}
}

// Subject returns the subject of the finding.
func (f Finding) Subject() Subject { return SubjectOf(f.File, f.Kind, f.Name) }

// GetFindings returns the parts of the object that have no effect.
func (s *Service) GetFindings() []Finding { return s.Findings }

// GetFindings returns the parts of the object that have no effect.
func (s *EndpointSlice) GetFindings() []Finding { return s.Findings }

// WithObject returns a copy of the finding with the object that it is about.
func (f Finding) WithObject(kind string, name ObjectName) Finding {
	f.Kind, f.Name = kind, name
	return f
}

// Sanitized returns a copy with texts that are safe to print, whatever the file contains: one line, no control
// characters, limited length. The name is unchanged, so that users can look the object up.
func (f Finding) Sanitized() Finding {
	for _, text := range []*string{&f.File, &f.Kind, &f.Field, &f.Reason} {
		*text = sanitize.Truncate(*text)
	}
	return f
}

// Compare orders findings for display: by file, object, field and reason.
func (f Finding) Compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.File, other.File), cmp.Compare(f.Kind, other.Kind), f.Name.Compare(other.Name),
		cmp.Compare(f.UID, other.UID), cmp.Compare(f.Line, other.Line), cmp.Compare(f.Field, other.Field),
		cmp.Compare(f.Reason, other.Reason), cmp.Compare(f.Code, other.Code))
}
