package pull

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// tokenTTL is the lifetime of a token. Each proxy authenticates a new token with the API server.
const tokenTTL = time.Hour

// Token is the token of a ServiceAccount that may only read the demand page of proxies. The webhook's own token would
// grant more, and any server at a node's address receives it.
type Token struct {
	Accounts coreclient.ServiceAccountInterface
	Account  string

	current            string
	renewAt, expiresAt time.Time
}

// Get returns a token. It requests a new one after half of the lifetime of the current one, and returns the current one
// while that fails.
func (t *Token) Get(ctx context.Context, now time.Time) (string, error) {
	if now.Before(t.renewAt) {
		return t.current, nil
	}
	seconds := int64(tokenTTL / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	response, err := t.Accounts.CreateToken(ctx, t.Account, request, metav1.CreateOptions{})
	switch {
	case err == nil:
		t.current, t.expiresAt = response.Status.Token, response.Status.ExpirationTimestamp.Time
		t.renewAt = now.Add(t.expiresAt.Sub(now) / 2)
	case !now.Before(t.expiresAt):
		return "", fmt.Errorf("get a token of the ServiceAccount %s: %w", t.Account, err)
	}
	return t.current, nil
}
