#!/bin/sh
# Creates the missing secrets of deploy/compose.yaml, one file each. It prints no secret. It replaces a secret only if an
# earlier release gave authserver the operator's Redis password: then redis_url and redis_users.conf are created again.
# Only the owner can enter the directory. The files are readable by all, because the containers run as other users; each
# container gets the files it needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-"$here/../secrets"}
mkdir -p "$dir"
chmod 700 "$dir"
cd "$dir"

keep() { # keep NAME writes standard input to the file NAME, unless it exists
	if [ -e "$1" ]; then cat >/dev/null; else
		(umask 077; cat >"$1.new")
		chmod 444 "$1.new"
		mv "$1.new" "$1"
	fi
}
random() { head -c 32 /dev/urandom | basenc --base64url | tr -d '=\n'; }

for name in postgres owner authserver resourceapi redis; do random | keep "${name}_password"; done
for role in owner authserver resourceapi; do
	login=$role
	[ "$role" != owner ] || login=almoner_owner
	printf 'postgres://%s:%s@postgres:5432/almoner?sslmode=disable' "$login" "$(cat "${role}_password")" | keep "${role}_database_url"
done
printf 'requirepass %s\n' "$(cat redis_password)" | keep redis.conf
if [ "$(cat redis_url 2>/dev/null)" = "redis://:$(cat redis_password)@redis:6379/0" ]; then
	rm -f redis_users.conf redis_url
	echo "authserver gets its own Redis user: run docker compose up --detach --force-recreate redis authserver" >&2
fi
# Each service has a Redis user with its own keys and commands. The user default, with redis_password, is the operator's.
printf 'redis://authserver:%s@redis:6379/0' "$(random)" | keep redis_url
printf 'redis://resourceapi:%s@redis:6379/0' "$(random)" | keep resourceapi_redis_url
user() { # user NAME FILE prints the line of the Redis user whose password is in the URL in FILE
	printf 'user %s on >%s %s\n' "$1" "$(sed 's|^redis://[^:]*:||; s|@.*||' "$2")" "$(cat "$here/redis-$1.acl")"
}
{ user authserver redis_url; user resourceapi resourceapi_redis_url; } | keep redis_users.conf
for service in authserver resourceapi; do random | keep "${service}_keys"; done
echo "the secrets are in $dir: keep a copy elsewhere" >&2
