package grant

import "time"

// SetLimit changes the limit of the work after a script may have decided.
func (s *Service) SetLimit(limit time.Duration) { s.limit = limit }

// SetRedisTime changes how long a decision waits for Redis, without what undoes it.
func (s *Service) SetRedisTime(wait time.Duration) { s.redisTime = wait }

// SetUndoWait changes how long a request waits while a step of its grant is undone.
func (s *Service) SetUndoWait(wait time.Duration) { s.undos.waitTime = wait }

// SetCommitPause changes the pause before an update of Postgres is repeated.
func (s *Service) SetCommitPause(pause time.Duration) { s.commitPause = pause }
