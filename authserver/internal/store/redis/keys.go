package redis

import "github.com/google/uuid"

// grantKey is the one key of a grant; the braces make it one hash slot.
func grantKey(id uuid.UUID) string { return "g:{" + id.String() + "}" }
