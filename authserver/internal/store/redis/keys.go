package redis

import "github.com/google/uuid"

// grantKey returns the key of a grant. The braces select the hash slot.
func grantKey(id uuid.UUID) string { return "g:{" + id.String() + "}" }
