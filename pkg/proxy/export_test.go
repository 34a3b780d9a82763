package proxy

// SyncInterval is for tests that count syncs.
const SyncInterval = syncInterval
