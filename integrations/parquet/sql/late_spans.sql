-- The spans of late ranks that take longer than the lower median of the other ranks of the group that waits for them:
-- for each late rank the five with the greatest difference, over all whole steps.
with times as (
    select p.run as run, p.rank as rank, p.path as path, sum(p.busy_ns) as host_ns, sum(p.gpu_ns) as gpu_ns
    from spans p join whole_steps w on p.run = w.run and p.rank = w.rank and p.step = w.step
    group by p.run, p.rank, p.path
),
members as (
    select distinct run, group_name, rank from arrivals
),
late_times as (
    select l.run as run, l.rank as rank, l.group_name as group_name, t.path as path, t.host_ns as host_ns,
        t.gpu_ns as gpu_ns
    from late_rank_list l join times t on l.run = t.run and l.rank = t.rank
),
peers as (
    select l.run as run, l.rank as rank, l.path as path, l.host_ns as host_ns, l.gpu_ns as gpu_ns,
        coalesce(t.host_ns, 0) as peer_host_ns, coalesce(t.gpu_ns, 0) as peer_gpu_ns, m.rank as peer
    from late_times l
    join members m on l.run = m.run and l.group_name = m.group_name and l.rank <> m.rank
    left join times t on m.run = t.run and m.rank = t.rank and l.path = t.path
),
places as (
    select run, rank, path, host_ns, gpu_ns, peer_host_ns, peer_gpu_ns,
        row_number() over (partition by run, rank, path order by peer_host_ns, peer) as host_place,
        row_number() over (partition by run, rank, path order by peer_gpu_ns, peer) as gpu_place,
        count(*) over (partition by run, rank, path) as peers
    from peers
),
medians as (
    select run, rank, path, max(host_ns) as host_ns, max(gpu_ns) as gpu_ns,
        max(case when 2 * host_place in (peers, peers + 1) then peer_host_ns else 0 end) as host_others_ns,
        max(case when 2 * gpu_place in (peers, peers + 1) then peer_gpu_ns else 0 end) as gpu_others_ns
    from places
    group by run, rank, path
),
kinds as (
    select run, rank, path, 0 as on_gpu, host_ns as time_ns, host_others_ns as others_ns from medians
    union all
    select run, rank, path, 1 as on_gpu, gpu_ns as time_ns, gpu_others_ns as others_ns from medians
),
ranked as (
    select run, rank, path, on_gpu, time_ns, others_ns,
        row_number() over (partition by run, rank order by time_ns - others_ns desc, path, on_gpu desc) as place
    from kinds
    where time_ns > others_ns
)
select run, rank, place, path, on_gpu, time_ns, others_ns
from ranked
where place <= 5
order by run, rank, place
