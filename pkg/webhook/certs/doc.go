// Package certs has the certificate with which the webhook answers the API server: SelfMade makes and renews it, Files reads what
// somebody else renews.
//
// # SelfMade
//
// The replicas share one Secret: a CA's key, the CAs to trust, and the certificate that all of them serve. What is done next is a
// function of what the Secret and the webhook configurations say, of what this replica serves, and of the time:
//
//	Secret, configurations ──► Memory.Observe: what is served, which CAs are trusted since when
//	                       └─► Decide: the next steps, each with its reason ──► Step.Apply: what the Secret should say
//
// A new CA becomes trusted before anything is served that needs it, and an old one is trusted until nothing can be served any more that
// needs it:
//
//  1. The new CA and its key go into the Secret, beside the old CA. The old CA's key is gone from then on.
//  2. Each caBundle is patched to trust both.
//  3. Every configuration has trusted the new CA for Settings.Settle: all API servers know by then.
//  4. A certificate of the new CA goes into the Secret, and the replicas serve it.
//  5. The last certificate of the old CA has expired: the old CA leaves the Secret, and then each caBundle.
//
// No replica leads. Each does whatever is next, and may be killed anywhere. A write of the Secret names the version that it was decided
// on, so one replica wins and the others read what it wrote. A patch of a configuration names the version that was seen before the
// Secret was read: whatever a CA was added for was in the Secret by then, so a replica that lags behind cannot take a CA away.
//
// A Secret that is deleted, or emptied, or replaced while a replica runs costs no handshake: what the replica serves goes on, its CA stays
// trusted, and the way is that of a rotation. So to distrust a CA at once, stop all replicas, delete the Secret, and start them.
//
// # Permissions
//
// SelfMade needs these and no others, for the ServiceAccount of the webhook. Names are those of Settings; a create cannot be bound to a
// name. There is no list: a watch begins with what is there.
//
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: Role # in the namespace of the webhook
//	rules:
//	- apiGroups: [""]
//	  resources: [secrets]
//	  resourceNames: [vicinity-webhook-tls]
//	  verbs: [get, watch, update]
//	- apiGroups: [""]
//	  resources: [secrets]
//	  verbs: [create]
//	---
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: ClusterRole
//	rules:
//	- apiGroups: [admissionregistration.k8s.io]
//	  resources: [mutatingwebhookconfigurations]
//	  resourceNames: [vicinity-webhook] # whatever the mutating configuration is called
//	  verbs: [get, watch, patch]
//	- apiGroups: [admissionregistration.k8s.io]
//	  resources: [validatingwebhookconfigurations]
//	  resourceNames: [vicinity-webhook]
//	  verbs: [get, watch, patch]
//
// Files needs none.
package certs
