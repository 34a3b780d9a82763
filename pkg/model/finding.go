package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Finding says that an object, or a part of it, does not work, and why. The code that finds this out makes it. The log,
// Events, pages and explain use it for what they say. It holds until the object, or the file, is put right.
type Finding struct {
	File string     // relative to the folder; empty for an object of a cluster
	Kind string     // "Service"; empty if the file or a document of it could not be read
	Name ObjectName // without a namespace if the kind is cluster-scoped
	UID  string     // that of an object of a cluster, if it is known where the finding is made
	Line int        // of the document, for an object that has no name; else zero

	Code FindingCode
	// Field is the part of the object that does not work: "spec.ports[0].port", or the name of an annotation; empty if no
	// single field is to blame.
	Field  string
	Reason string // why, for people
	// Local: it holds only on this node. Otherwise it follows from the cluster's objects, and all nodes find it.
	Local bool
}

// FindingCode is a stable name of what is found, safe to alert on. It is the reason of Events.
type FindingCode string

// The codes. The codes of annotations without effect are those of policy.Annotations.
const (
	// Invalid: the object is left out, and its last good version stays in force.
	Invalid FindingCode = "Invalid"
	// ValueIgnored: a label or annotation counts as absent, because its value cannot be read.
	ValueIgnored FindingCode = "ValueIgnored"
	// PartiallyIgnored: the rest of the object is served.
	PartiallyIgnored FindingCode = "PartiallyIgnored"
	// FrontendConflict: another Service owns a frontend. FrontendIsAPIServer: the proxy reaches the API server there.
	// FrontendIsProbed: proxies find out there whether a node answers.
	FrontendConflict    FindingCode = "FrontendConflict"
	FrontendIsAPIServer FindingCode = "FrontendIsAPIServer"
	FrontendIsProbed    FindingCode = "FrontendIsProbed"
	// SessionAffinityIgnored: the Service's clients are not remembered.
	SessionAffinityIgnored FindingCode = "SessionAffinityIgnored"
	// FailedToProgram: the kernel does not take the Service's newest version.
	FailedToProgram FindingCode = "FailedToProgram"
	// HealthCheckListenFailed: load balancers get no answer at the Service's healthCheckNodePort. The name is kube-proxy's.
	HealthCheckListenFailed FindingCode = "FailedToStartServiceHealthcheck"
	// LocalhostNodePortNotServed: a node port of the Service cannot be dialled on a loopback address.
	LocalhostNodePortNotServed FindingCode = "LocalhostNodePortNotServed"
)

// FindingCodes are all codes.
var FindingCodes = func() []FindingCode {
	codes := []FindingCode{
		Invalid, ValueIgnored, PartiallyIgnored, FrontendConflict, FrontendIsAPIServer, FrontendIsProbed, SessionAffinityIgnored,
		FailedToProgram, HealthCheckListenFailed, LocalhostNodePortNotServed,
	}
	for _, annotation := range policy.Annotations {
		if code := FindingCode(annotation.Ignored); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	return codes
}()

// IsAnnotation reports whether the code says that an annotation has no effect.
func (c FindingCode) IsAnnotation() bool {
	return slices.ContainsFunc(policy.Annotations[:], func(a policy.Annotation) bool { return FindingCode(a.Ignored) == c })
}

// Object returns the object as people call it: "Service default/web", "Node node-1". It is empty if there is none to
// name.
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

// Sentence says what does not work, and why: "spec.ports[0].port: Invalid value: 70000: ...".
func (f Finding) Sentence() string {
	if f.Field == "" {
		return f.Reason
	}
	return f.Field + ": " + f.Reason
}

// String returns the finding as one line: "services.yaml: Service default/web: spec.ports[0].port: Invalid value: 70000:
// ...".
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

// Error makes a Finding an error.
func (f Finding) Error() string { return f.String() }

// IsRejection reports whether the object, or file, is refused.
func (f Finding) IsRejection() bool { return f.Code == Invalid }

// IsInvalidInput reports whether something could not be read: the object, or a label or annotation of it. All other findings are
// about what was read.
func (c FindingCode) IsInvalidInput() bool { return c == Invalid || c == ValueIgnored }

// Subject is what a finding is about: an object, or else a file.
type Subject struct {
	File, Kind string
	Name       ObjectName
}

// SubjectOf returns an object; a file, if it has no name.
func SubjectOf(file, kind string, name ObjectName) Subject {
	if name != (ObjectName{}) {
		file = "" // an object may move to another one
	}
	return Subject{file, kind, name}
}

// Subject returns what the finding is about.
func (f Finding) Subject() Subject { return SubjectOf(f.File, f.Kind, f.Name) }

// GetFindings returns which parts of the object have no effect.
func (s *Service) GetFindings() []Finding { return s.Findings }

// GetFindings returns which parts of the object have no effect.
func (s *EndpointSlice) GetFindings() []Finding { return s.Findings }

// WithObject returns the finding with the object that it is about.
func (f Finding) WithObject(kind string, name ObjectName) Finding {
	f.Kind, f.Name = kind, name
	return f
}

// Sanitized makes texts safe to print, whatever the file held: one line, no control characters, not too long. The name
// stays as it is, so that users can look the object up.
func (f Finding) Sanitized() Finding {
	for _, text := range []*string{&f.File, &f.Kind, &f.Field, &f.Reason} {
		*text = sanitize.Truncate(*text)
	}
	return f
}

// Compare orders findings as they are read: by file, object, field and reason.
func (f Finding) Compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.File, other.File), cmp.Compare(f.Kind, other.Kind), f.Name.Compare(other.Name),
		cmp.Compare(f.UID, other.UID), cmp.Compare(f.Line, other.Line), cmp.Compare(f.Field, other.Field),
		cmp.Compare(f.Reason, other.Reason), cmp.Compare(f.Code, other.Code))
}
