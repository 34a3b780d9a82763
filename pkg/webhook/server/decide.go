package server

import (
	"encoding/json"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The served paths, as in the webhook configurations.
const (
	DefaultServicesPath    = "/default-services"
	ValidateServicesPath   = "/validate-services"
	ValidateNamespacesPath = "/validate-namespaces"
)

// Paths returns all served paths.
func Paths() []string {
	return []string{DefaultServicesPath, ValidateServicesPath, ValidateNamespacesPath}
}

// Dependencies provide what reviews need besides the request. Each function is called for every review and from many
// goroutines concurrently. Results must be immutable.
//
// A review that waits counts as in flight. So Settings and Facts must not block. Namespace may block for a fraction of
// a second, and for far fewer reviews than may be in flight: the other reviews then still get through, however many
// name unknown Namespaces.
type Dependencies struct {
	Settings  func() *rules.Settings
	Facts     func() rules.Facts
	Namespace func(name string) rules.NamespaceDefaults
}

// reviewer decides about the body of a request. An error is a rejection or a failure.
type reviewer func(body []byte) (*reviewDecision, error)

func (d Dependencies) reviewers() map[string]reviewer {
	return map[string]reviewer{
		DefaultServicesPath:    d.defaultService,
		ValidateServicesPath:   d.validateService,
		ValidateNamespacesPath: d.validateNamespace,
	}
}

func (d Dependencies) validateService(body []byte) (*reviewDecision, error) {
	request, err := decodeService(body)
	if err != nil {
		return nil, err
	}
	return &reviewDecision{
		requestInfo: request.requestInfo,
		name:        nameOf(&request.Object.Metadata),
		result:      rules.ReviewService(request.stored(), request.Object, d.Facts(), d.Settings()),
	}, nil
}

func (d Dependencies) validateNamespace(body []byte) (*reviewDecision, error) {
	request, err := decode[rules.Namespace](body, namespaceTarget)
	if err != nil {
		return nil, err
	}
	return &reviewDecision{
		requestInfo: request.requestInfo,
		name:        nameOf(&request.Object.Metadata),
		result:      rules.ReviewNamespace(request.stored(), request.Object, d.Settings()),
	}, nil
}

func (d Dependencies) defaultService(body []byte) (*reviewDecision, error) {
	request, err := decodeService(body)
	if err != nil {
		return nil, err
	}
	decision := rules.DecideDefault(
		request.Object, d.Namespace(request.Namespace), d.Facts(), d.Settings(), request.Operation == update,
	)
	patch, err := encodePatch(decision.Add, request.Object)
	if err != nil {
		return nil, err
	}
	return &reviewDecision{requestInfo: request.requestInfo, name: nameOf(&request.Object.Metadata), defaulted: &decision, patch: patch}, nil
}

// encodePatch returns the JSON Patch that adds a default; nil if there is nothing to add.
func encodePatch(added *rules.Default, service *rules.Service) ([]byte, error) {
	if added == nil {
		return nil, nil
	}
	operations := added.Patch(service)
	if len(operations) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, &failure{Unwritable, fmt.Sprintf("encode the patch for Service %s: %s", service.Metadata.Name, err)}
	}
	return patch, nil
}

// nameOf returns an object's name, or its generateName if it has none yet.
func nameOf(metadata *rules.Metadata) string {
	if metadata.Name == "" {
		return metadata.GenerateName
	}
	return metadata.Name
}
