// Package certs provides the webhook's serving certificate. SelfSigned generates and renews it; Files reads one that
// another program renews.
//
// # SelfSigned
//
// The replicas share one Secret: a CA's key, the trusted CAs, and the certificate that all of them serve. The next
// steps are a function of the Secret, the webhook configurations, how long all configurations have trusted the CA, and
// the time. To change when a certificate is generated, trusted, served or dropped, start in decide.go.
//
// A new CA is trusted before any replica serves a certificate of it, and an old CA stays trusted until its last
// certificate has expired:
//
//  1. The new CA and its key are added to the Secret. The old CA stays in it, but its key is replaced.
//  2. Each caBundle is patched to trust both.
//  3. A replica has observed for Settings.TrustDelay that every configuration trusts the new CA: by then all API
//     servers have received it.
//  4. That replica writes a certificate of the new CA into the Secret, and all replicas serve it.
//  5. After the last certificate of the old CA has expired, the old CA is removed from the Secret, and then from each
//     caBundle.
//
// There is no leader. Each replica takes the next steps, and may be killed at any moment. A write of the Secret
// contains the version on which the step was decided, so one replica wins and the others read its result. A patch of a
// configuration contains the version that was read before the Secret: each CA in it was in the Secret by then, so a
// replica that lags behind cannot remove a CA.
//
// If the Secret is deleted, or its CA cannot sign what the replicas serve, it is created with another CA, which is
// served and trusted at once: calls fail until the API servers have the new caBundle, about a second. Deleting the
// Secret is therefore the way to revoke a CA whose key has leaked.
//
// SelfSigned needs the permissions in manifests/webhook/base/access.yaml; Files needs none.
package certs
