package apitest

// Trips are the round trips of one request.
type Trips struct{ Postgres, Redis int }

const (
	// enough that one extra round trip per request exceeds the tolerance
	countedTimes = 20
	// tolerance for new connections, prepared statements and batched writes to Redis
	tolerance    = 12
	countedTries = 3 // retries for other activity: an extra round trip of the request itself occurs in each
)

// CountTrips warms up the connections to the stores, sends the request many times and compares the number of round
// trips.
func (s *Server) CountTrips(what string, each Trips, send func()) {
	s.t.Helper()
	send()
	for try := 1; ; try++ {
		var got Trips
		got.Redis = s.RedisTrips.Of(func() {
			got.Postgres = s.PostgresTrips.Of(func() {
				for range countedTimes {
					send()
				}
			})
		})
		if fits(got.Postgres, each.Postgres) && fits(got.Redis, each.Redis) {
			return
		}
		if try == countedTries {
			s.t.Errorf("%s: %d requests took %+v, want %+v each", what, countedTimes, got, each)
			return
		}
	}
}

func fits(got, each int) bool {
	least := each * countedTimes
	return got >= least && got <= least+tolerance
}
