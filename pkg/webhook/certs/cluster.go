package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

func (s *SelfSigned) secretName() string {
	return "Secret " + s.settings.Namespace + "/" + s.settings.Secret
}

// readSecret reads the Secret from the API server, not from a cache that may lag behind. It returns nil if there is
// none.
func (s *SelfSigned) readSecret(ctx context.Context) (*corev1.Secret, error) {
	requestCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := s.secrets.Get(requestCtx, s.settings.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	return secret, s.failures.report(ctx, ReadSecret, s.secretName(), err)
}

// writeSecret updates the Secret after a step, and keeps other keys in it. It returns false without an error if the
// Secret has changed in the meantime.
func (s *SelfSigned) writeSecret(ctx context.Context, act action, seen view, secret *corev1.Secret) (isWritten bool, err error) {
	requestCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var data map[string][]byte
	next, err := seen.contentAfter(act, s.settings)
	if err == nil {
		data, err = next.data()
	}
	switch {
	case err != nil:
	case secret == nil:
		_, err = s.secrets.Create(requestCtx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: s.settings.Secret, Namespace: s.settings.Namespace}, Type: corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	default:
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		maps.Copy(secret.Data, data)
		_, err = s.secrets.Update(requestCtx, secret, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || secret != nil && apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, s.failures.report(ctx, WriteSecret, s.secretName(), err)
}

// The two kinds of webhook configurations. The same fields of both are read and written.
const (
	mutating   = "mutatingwebhookconfigurations"
	validating = "validatingwebhookconfigurations"
)

// configurationNames returns the names of the configurations whose caBundle is maintained, by resource.
func (s Settings) configurationNames() map[string]string {
	names := map[string]string{mutating: s.Mutating, validating: s.Validating}
	maps.DeleteFunc(names, func(_, name string) bool { return name == "" })
	return names
}

// readConfigurations reads the existing webhook configurations. One may be missing: its manifest has not been applied
// yet, or was deleted. One that cannot be read is returned as unknown.
func (s *SelfSigned) readConfigurations(ctx context.Context) (all []configuration, err error) {
	for resource, name := range s.settings.configurationNames() {
		read, readErr := s.readConfiguration(ctx, resource, name)
		if apierrors.IsNotFound(readErr) {
			readErr = nil
		} else {
			all = append(all, read)
		}
		err = errors.Join(err, s.failures.report(ctx, ReadConfiguration, resource+"/"+name, readErr))
	}
	return all, err
}

// readConfiguration reads the fields that both kinds have.
func (s *SelfSigned) readConfiguration(ctx context.Context, resource, name string) (configuration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found := configuration{resource: resource, unknown: true}
	result := s.webhooks.Get().Resource(resource).Name(name).SetHeader("Accept", "application/json").Do(ctx)
	if err := result.Error(); err != nil {
		return found, err
	}
	body, err := result.Raw()
	if err != nil {
		return found, err
	}
	var read struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Webhooks []struct {
			ClientConfig struct {
				CABundle []byte `json:"caBundle"`
			} `json:"clientConfig"`
		} `json:"webhooks"`
	}
	if err := json.Unmarshal(body, &read); err != nil {
		return found, err
	}
	found.unknown, found.version = false, read.Metadata.ResourceVersion
	for _, webhook := range read.Webhooks {
		found.bundles = append(found.bundles, string(webhook.ClientConfig.CABundle))
	}
	return found, nil
}

// patch writes the Secret's CAs into a configuration. It returns false without an error if the configuration has
// changed in the meantime.
func (s *SelfSigned) patch(ctx context.Context, seen configuration, trusted bundle) (isWritten bool, err error) {
	requestCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	type operation struct { // of a JSON patch (RFC 6902)
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	// An API server rejects a patch with an outdated version of the object.
	operations := []operation{{"replace", "/metadata/resourceVersion", seen.version}}
	for i := range seen.bundles {
		operations = append(operations, operation{"add", "/webhooks/" + strconv.Itoa(i) + "/clientConfig/caBundle", trusted.encode()})
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return false, fmt.Errorf("encode patch: %w", err)
	}
	name := s.settings.configurationNames()[seen.resource]
	err = s.webhooks.Patch(types.JSONPatchType).Resource(seen.resource).Name(name).Body(body).Do(requestCtx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, s.failures.report(ctx, PatchConfiguration, seen.resource+"/"+name, err)
}

// watchObjects signals whenever one of the objects changes, until the context ends.
//
// An informer would cache objects that are read again anyway, and needs the permission to list.
func (s *SelfSigned) watchObjects(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() { s.watch(ctx, s.core, s.settings.Namespace, "secrets", s.settings.Secret) })
	for resource, name := range s.settings.configurationNames() {
		running.Go(func() { s.watch(ctx, s.webhooks, "", resource, name) })
	}
}

// watch signals whenever one object changes, and when a watch starts: the object may have changed before.
func (s *SelfSigned) watch(ctx context.Context, client rest.Interface, namespace, resource, name string) {
	options := &metav1.ListOptions{Watch: true, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	// API servers end working watches from time to time.
	pauses := retries.DelayWithReset(clock.RealClock{}, time.Minute)
	_ = pauses.Until(ctx, true, true, func(ctx context.Context) (bool, error) { // its only error is the end of the context
		changes, err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
			VersionedParams(options, scheme.ParameterCodec).Watch(ctx)
		if s.failures.report(ctx, Watch, resource+"/"+name, err) != nil {
			return false, nil
		}
		defer changes.Stop()
		s.changed.Notify()
		for change := range changes.ResultChan() { // it closes with the context
			if change.Type == watch.Error {
				s.settings.Log.Debug("certificates: watch ended", "object", name, "error", apierrors.FromObject(change.Object))
				return false, nil
			}
			s.changed.Notify()
		}
		return false, nil
	})
}
