// Package certs provides the certificate with which the webhook answers the API server: SelfMade makes and renews it,
// Files reads one that another program renews.
//
// # SelfMade
//
// The replicas share one Secret: a CA's key, the CAs to trust, and the certificate that all of them serve. The next
// steps are a function of the Secret, the webhook configurations, how long all configurations have trusted the CA, and
// the time (decide.go).
//
// A new CA becomes trusted before any replica serves a certificate of it, and an old CA stays trusted until the last
// certificate of it has expired:
//
//  1. The new CA and its key go into the Secret, beside the old CA. The old CA's key is gone from then on.
//  2. Each caBundle is patched to trust both.
//  3. A replica has seen for Settings.Settle that every configuration trusts the new CA: all API servers know by then.
//  4. That replica puts a certificate of the new CA into the Secret, and all replicas serve it.
//  5. The last certificate of the old CA has expired: the old CA leaves the Secret, and then each caBundle.
//
// There is no leader. Each replica takes the next steps, and may be killed at any moment. A write of the Secret names
// the version on which the step was decided, so one replica wins and the others read what it wrote. A patch of a
// configuration names the version that was read before the Secret was: each CA that was added was in the Secret by
// then, so a replica that lags behind cannot take a CA away.
//
// A Secret that is deleted, or whose CA cannot sign what the replicas serve, is made anew with another CA, which is
// served and trusted at once: calls fail until the API servers have seen the new caBundle, about a second. Deleting the
// Secret is therefore the way to distrust a CA whose key has leaked.
//
// SelfMade needs the permissions that manifests/webhook/base/access.yaml gives, Files needs none.
package certs
