package grant

import "time"

// SetLimit changes the limit of the work after a script may have decided.
func (k *Service) SetLimit(limit time.Duration) { k.limit = limit }
