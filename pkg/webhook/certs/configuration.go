package certs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// configurationAPI is how one webhook configuration is reached, whichever its kind.
type configurationAPI struct {
	name  string // its kind and its name
	bare  string
	get   func(ctx context.Context) (*seenConfiguration, error)
	patch func(ctx context.Context, patch []byte) error
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// seenConfiguration is a configuration as it was read.
type seenConfiguration struct {
	name     string
	version  string
	webhooks []seenWebhook
	unknown  bool
	patch    func(ctx context.Context, patch []byte) error
}

type seenWebhook struct {
	name   string
	bundle []byte
}

// values returns what decisions depend on.
func values(seen []*seenConfiguration) []Configuration {
	var configurations []Configuration
	for _, one := range seen {
		configuration := Configuration{Name: one.name, Unknown: one.unknown}
		for _, webhook := range one.webhooks {
			configuration.Bundles = append(configuration.Bundles, webhook.bundle)
		}
		configurations = append(configurations, configuration)
	}
	return configurations
}

func configurationAPIs(client admissionclient.AdmissionregistrationV1Interface, settings Settings) []configurationAPI {
	var apis []configurationAPI
	if settings.Mutating != "" {
		apis = append(apis, mutatingAPI(client.MutatingWebhookConfigurations(), settings.Mutating))
	}
	if settings.Validating != "" {
		apis = append(apis, validatingAPI(client.ValidatingWebhookConfigurations(), settings.Validating))
	}
	return apis
}

func mutatingAPI(client admissionclient.MutatingWebhookConfigurationInterface, name string) configurationAPI {
	return configurationAPI{
		name: "MutatingWebhookConfiguration " + name, bare: name,
		get: func(ctx context.Context) (*seenConfiguration, error) {
			found, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			seen := &seenConfiguration{version: found.ResourceVersion}
			for _, webhook := range found.Webhooks {
				seen.webhooks = append(seen.webhooks, seenWebhook{webhook.Name, webhook.ClientConfig.CABundle})
			}
			return seen, nil
		},
		patch: func(ctx context.Context, patch []byte) error {
			_, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
			return err
		},
		watch: client.Watch,
	}
}

func validatingAPI(client admissionclient.ValidatingWebhookConfigurationInterface, name string) configurationAPI {
	return configurationAPI{
		name: "ValidatingWebhookConfiguration " + name, bare: name,
		get: func(ctx context.Context) (*seenConfiguration, error) {
			found, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return &seenConfiguration{version: found.ResourceVersion, webhooks: validatingWebhooks(found)}, nil
		},
		patch: func(ctx context.Context, patch []byte) error {
			_, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
			return err
		},
		watch: client.Watch,
	}
}

func validatingWebhooks(found *admissionv1.ValidatingWebhookConfiguration) []seenWebhook {
	var webhooks []seenWebhook
	for _, webhook := range found.Webhooks {
		webhooks = append(webhooks, seenWebhook{webhook.Name, webhook.ClientConfig.CABundle})
	}
	return webhooks
}

// lookAtConfigurations reads those that exist. One that is missing is none: its manifest has not been applied yet, or was deleted. One
// that cannot be read may say anything.
func (s *SelfMade) lookAtConfigurations(ctx context.Context, result *outcome) []*seenConfiguration {
	ctx, cancel := context.WithTimeout(ctx, requestBudget)
	defer cancel()
	var all []*seenConfiguration
	for _, api := range s.configurations {
		seen, err := api.get(ctx)
		if apierrors.IsNotFound(err) {
			s.failures.mended(ReadConfiguration, api.name)
			continue
		}
		if s.failures.tell(ctx, ReadConfiguration, api.name, err) != nil {
			result.failed = true
			seen = &seenConfiguration{unknown: true}
		}
		seen.name, seen.patch = api.name, api.patch
		all = append(all, seen)
	}
	return all
}

// patch makes a configuration trust what the Secret says. It returns false without an error if it is not any more what was seen.
func (s *SelfMade) patch(ctx context.Context, name string, content *Content, seen []*seenConfiguration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestBudget)
	defer cancel()
	configuration := seen[slices.IndexFunc(seen, func(one *seenConfiguration) bool { return one.name == name })]
	patch, err := json.Marshal(bundlePatch(configuration, content.Trusted.encode()))
	if err == nil {
		err = configuration.patch(ctx, patch)
	}
	if err != nil && s.isOutdated(ctx, configuration, err) {
		return false, nil
	}
	return err == nil, s.failures.tell(ctx, PatchConfiguration, name, err)
}

// isOutdated reports whether a patch was refused because the configuration has changed or gone. A test of a patch that fails has the same
// code as an object that is not valid, so the configuration is looked at again.
func (s *SelfMade) isOutdated(ctx context.Context, seen *seenConfiguration, err error) bool {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity {
		return false
	}
	api := s.configurations[slices.IndexFunc(s.configurations, func(api configurationAPI) bool { return api.name == seen.name })]
	now, err := api.get(ctx)
	return apierrors.IsNotFound(err) || err == nil && now.version != seen.version
}

// patchOperation is one of a JSON patch (RFC 6902).
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// bundlePatch sets the caBundle of those webhooks that have another one. It tests that the object is the version that was seen, and, for
// those who read audit logs, that each place is the webhook that is meant.
func bundlePatch(seen *seenConfiguration, want []byte) []patchOperation {
	operations := []patchOperation{{"test", "/metadata/resourceVersion", seen.version}}
	for i, webhook := range seen.webhooks {
		if string(webhook.bundle) == string(want) {
			continue
		}
		path := "/webhooks/" + strconv.Itoa(i)
		operations = append(operations,
			patchOperation{"test", path + "/name", webhook.name},
			patchOperation{"add", path + "/clientConfig/caBundle", want}, // add replaces what is there
		)
	}
	return operations
}
