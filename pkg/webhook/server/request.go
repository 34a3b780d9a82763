package server

import (
	"fmt"
	"regexp"
	"unicode/utf8"

	"sigs.k8s.io/json"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The types here have only those fields of admission.k8s.io/v1 that are used. So fields that a later Kubernetes adds
// change nothing, and an object's managedFields are not decoded.

const reviewVersion, reviewKind = "admission.k8s.io/v1", "AdmissionReview"

type review[T any] struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Request    *request[T] `json:"request"`
}

// request is an AdmissionRequest about objects of one type.
type request[T any] struct {
	requestInfo
	Object    *T `json:"object"`
	OldObject *T `json:"oldObject"`
}

// requestInfo identifies the object of a request, its operation and its user.
type requestInfo struct {
	UID         string        `json:"uid"`
	Kind        kind          `json:"kind"`
	Resource    resourceNames `json:"resource"`
	SubResource string        `json:"subResource"`
	Operation   string        `json:"operation"`
	Namespace   string        `json:"namespace"`
	Name        string        `json:"name"`
	User        user          `json:"userInfo"`
	DryRun      bool          `json:"dryRun"`
}

type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func (k kind) String() string { return join(k.Group, k.Version, k.Kind) }

type resourceNames struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
}

func (r resourceNames) String() string { return join(r.Group, r.Version, r.Resource) }

func join(group, version, name string) string {
	if group == "" {
		return version + " " + name
	}
	return group + "/" + version + " " + name
}

type user struct {
	Name string `json:"username"`
}

// The reviewed operations. The others are never registered: a DELETE that fails because a webhook is down would mean a
// namespace that is never deleted.
const create, update = "CREATE", "UPDATE"

// target is the kind and resource that a path serves.
type target struct {
	kind     kind
	resource resourceNames
}

var (
	serviceTarget   = target{kind{"", "v1", "Service"}, resourceNames{"", "v1", "services"}}
	namespaceTarget = target{kind{"", "v1", "Namespace"}, resourceNames{"", "v1", "namespaces"}}
)

// decode parses the review in body. An error is a rejection. The result has an object, and for an update an oldObject.
func decode[T any](body []byte, want target) (*request[T], error) {
	// The decoder would replace invalid UTF-8, and the decision would be about another text.
	if !utf8.Valid(body) {
		return nil, rejectMalformed("the body is not UTF-8")
	}
	var parsed review[T]
	err := json.UnmarshalCaseSensitivePreserveInts(body, &parsed)
	if syntax, offset := json.SyntaxErrorOffset(err); syntax {
		return nil, rejectMalformed("the body is not JSON: %s (at byte %d)", err, offset)
	}
	// The only other error is a field of the wrong type, after which decoding continued. The errors of check are more
	// specific.
	if rejection := parsed.check(want); rejection != nil {
		return nil, rejection
	}
	if err != nil {
		return nil, rejectMalformed("the request is not about a %s: %s", want.kind.Kind, goStructField.ReplaceAllString(err.Error(), "$1"))
	}
	if rejection := parsed.Request.checkObjects(want); rejection != nil {
		return nil, rejection
	}
	return parsed.Request, nil
}

// goStructField is the decoder's prefix of a field's path, which means nothing to clients.
var goStructField = regexp.MustCompile(`Go struct field \S*?(request\.\S+)`)

// decodeService parses a review of a Service. It sets the objects' Namespace to that of the request, whatever they
// contain.
func decodeService(body []byte) (*request[rules.Service], error) {
	parsed, err := decode[rules.Service](body, serviceTarget)
	if err != nil {
		return nil, err
	}
	if parsed.Namespace == "" {
		return nil, rejectMalformed("the request has no namespace, which every Service has")
	}
	for _, service := range []*rules.Service{parsed.Object, parsed.OldObject} {
		if service != nil {
			service.Metadata.Namespace = parsed.Namespace
		}
	}
	return parsed, nil
}

// check validates everything but the objects.
func (r *review[T]) check(want target) error {
	if r.APIVersion != reviewVersion || r.Kind != reviewKind {
		return rejectMalformed("got %s, want an %s of %s: list v1 in the webhook's admissionReviewVersions",
			describeType(r.APIVersion, r.Kind), reviewKind, reviewVersion)
	}
	if r.Request == nil {
		return rejectMalformed("the %s has no request", reviewKind)
	}
	return r.Request.check(want)
}

func describeType(version, kind string) string {
	if version == "" && kind == "" {
		return "an object without apiVersion and kind"
	}
	return fmt.Sprintf("apiVersion %q, kind %q", version, kind)
}

func (r *requestInfo) check(want target) error {
	switch {
	case r.UID == "":
		return rejectMalformed("the request has no uid")
	case r.Resource != want.resource:
		return rejectUnexpected("got a review of %q on the path for %q: correct the webhook's rules", r.Resource, want.resource)
	case r.Kind != want.kind:
		return rejectUnexpected("got a review of %q on the path for %q: set the webhook's matchPolicy to Equivalent", r.Kind, want.kind)
	case r.SubResource != "":
		return rejectUnexpected("got a review of the subresource %q: the webhook's rules must list only %s", r.SubResource,
			want.resource.Resource)
	case r.Operation != create && r.Operation != update:
		return rejectUnexpected("got a review of the operation %q: the webhook's rules must list only %s and %s", r.Operation, create, update)
	}
	return nil
}

func (r *request[T]) checkObjects(want target) error {
	switch {
	case r.Object == nil:
		return rejectMalformed("the request to %s a %s has no object", r.Operation, want.kind.Kind)
	case r.Operation == update && r.OldObject == nil:
		return rejectMalformed("the request to %s a %s has no oldObject", r.Operation, want.kind.Kind)
	}
	return nil
}

// stored returns the object as stored; nil for a create.
func (r *request[T]) stored() *T {
	if r.Operation == create {
		return nil
	}
	return r.OldObject
}
