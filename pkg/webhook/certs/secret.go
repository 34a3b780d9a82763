package certs

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readSecret reads the Secret from the API server, and not from anything that may lag behind it. It returns nil if there is none.
func (s *SelfMade) readSecret(ctx context.Context) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestBudget)
	defer cancel()
	secret, err := s.secrets.Get(ctx, s.settings.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	return secret, s.failures.tell(ctx, ReadSecret, s.secretName(), err)
}

// write makes the Secret say what it should say after a step. It returns false without an error if somebody else wrote it meanwhile.
func (s *SelfMade) write(ctx context.Context, now time.Time, step Step, secret *corev1.Secret, content *Content) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestBudget)
	defer cancel()
	wanted, err := s.secretAfter(now, step, secret, content)
	if err == nil && secret == nil {
		_, err = s.secrets.Create(ctx, wanted, metav1.CreateOptions{})
	} else if err == nil {
		_, err = s.secrets.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || secret != nil && apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, s.failures.tell(ctx, WriteSecret, s.secretName(), err)
}

// secretAfter is the Secret after a step. What others put into it stays.
func (s *SelfMade) secretAfter(now time.Time, step Step, secret *corev1.Secret, content *Content) (*corev1.Secret, error) {
	after, err := step.Apply(now, content, s.memory, s.settings)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step.Do, err)
	}
	data, err := after.data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step.Do, err)
	}
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.settings.Secret, Namespace: s.settings.Namespace},
		Type:       corev1.SecretTypeTLS,
	}
	if secret != nil {
		wanted = secret.DeepCopy()
	}
	if wanted.Data == nil {
		wanted.Data = map[string][]byte{}
	}
	maps.Copy(wanted.Data, data)
	delete(wanted.Annotations, untilNotation)
	for key, value := range after.annotations() {
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, key, value)
	}
	return wanted, nil
}

func (s *SelfMade) secretName() string {
	return "Secret " + s.settings.Namespace + "/" + s.settings.Secret
}
