-- The steps of each rank, recorded or not.
select run, rank, count(*) as steps, sum(case when recorded then 1 else 0 end) as recorded, sum(duration_ns) as total_ns,
    min(duration_ns) as min_ns, max(duration_ns) as max_ns
from steps
group by run, rank
order by run, rank
