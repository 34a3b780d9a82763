package server

import (
	"encoding/json"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The paths that are served, as the webhook configurations name them.
const (
	DefaultServicesPath    = "/default-services"
	ValidateServicesPath   = "/validate-services"
	ValidateNamespacesPath = "/validate-namespaces"
)

// Paths are all there are.
func Paths() []string {
	return []string{DefaultServicesPath, ValidateServicesPath, ValidateNamespacesPath}
}

// Dependencies is what is known besides the review itself. Each function is called for every review and from many
// goroutines at once, and its result must never change.
//
// A review that waits keeps its place among those in flight. So Settings and Cluster must not wait. Namespace may, for
// a fraction of a second and for much fewer reviews than may be in flight: then those whose Namespace is known still
// find a place, however many come about others.
type Dependencies struct {
	Settings  func() *rules.Settings
	Facts     func() rules.Facts
	Namespace func(name string) rules.NamespaceDefaults
}

// reviewer turns the body of a request into a verdict. Errors are refusals and failures.
type reviewer func(body []byte) (*reviewDecision, error)

func (k Dependencies) reviewers() map[string]reviewer {
	return map[string]reviewer{
		DefaultServicesPath:    k.defaultService,
		ValidateServicesPath:   k.validateService,
		ValidateNamespacesPath: k.validateNamespace,
	}
}

func (k Dependencies) validateService(body []byte) (*reviewDecision, error) {
	request, err := decodeService(body)
	if err != nil {
		return nil, err
	}
	return &reviewDecision{
		subject: request.subject,
		name:    nameOf(&request.Object.Metadata),
		result:  rules.ReviewService(request.before(), request.Object, k.Facts(), k.Settings()),
	}, nil
}

func (k Dependencies) validateNamespace(body []byte) (*reviewDecision, error) {
	request, err := decode[rules.Namespace](body, namespaces)
	if err != nil {
		return nil, err
	}
	return &reviewDecision{
		subject: request.subject,
		name:    nameOf(&request.Object.Metadata),
		result:  rules.ReviewNamespace(request.before(), request.Object, k.Settings()),
	}, nil
}

func (k Dependencies) defaultService(body []byte) (*reviewDecision, error) {
	request, err := decodeService(body)
	if err != nil {
		return nil, err
	}
	decision := rules.DecideDefault(
		request.Object, k.Namespace(request.Namespace), k.Facts(), k.Settings(), request.Operation == update,
	)
	patch, err := encodePatch(decision.Add, request.Object)
	if err != nil {
		return nil, err
	}
	return &reviewDecision{subject: request.subject, name: nameOf(&request.Object.Metadata), defaulted: &decision, patch: patch}, nil
}

// encodePatch returns nil if there is nothing to do.
func encodePatch(add *rules.Default, service *rules.Service) ([]byte, error) {
	if add == nil {
		return nil, nil
	}
	operations := add.Patch(service)
	if len(operations) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, &failure{Unwritable, fmt.Sprintf("encoding the patch for Service %s: %s", service.Metadata.Name, err)}
	}
	return patch, nil
}

// nameOf is an object's name, or the prefix for generating it if it has none yet.
func nameOf(metadata *rules.Metadata) string {
	if metadata.Name == "" {
		return metadata.GenerateName
	}
	return metadata.Name
}
